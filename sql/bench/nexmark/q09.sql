-- The winning bid of each auction; of equal prices the first one.
SELECT id, item, seller, category, bidder, price, bid_at
FROM (
  SELECT a.id, a.item, a.seller, a.category, b.bidder, b.price, b.at AS bid_at,
         row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at, b.bidder) AS place
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.at BETWEEN a.at AND a.expires
) WHERE place = 1;
