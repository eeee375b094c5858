-- The highest bids of each ten seconds.
WITH spans AS (SELECT *, window(at, '10 seconds').start AS begins FROM bid)
SELECT s.begins, s.auction, s.bidder, s.price
FROM spans s
JOIN (SELECT begins, max(price) AS highest FROM spans GROUP BY begins) m
  ON s.begins = m.begins AND s.price = m.highest;
