-- Each person's last bid on each auction.
SELECT auction, bidder, price, channel, at
FROM (
  SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY at DESC, price DESC) AS place
  FROM bid
) WHERE place = 1;
