-- The ten highest bids on each auction; those that are equal to the tenth as well.
SELECT auction, bidder, price, at, place
FROM (SELECT *, rank() OVER (PARTITION BY auction ORDER BY price DESC) AS place FROM bid)
WHERE place <= 10;
