-- The parts of an address.
SELECT auction, bidder, price, channel, split(url, '/')[3] AS first, split(url, '/')[4] AS second
FROM bid
WHERE size(split(url, '/')) >= 5;
