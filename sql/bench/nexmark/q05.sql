-- The auctions with the most bids in the last ten seconds, every two seconds.
WITH counted AS (
  SELECT auction, count(*) AS bids, span.start AS begins
  FROM (SELECT auction, window(at, '10 seconds', '2 seconds') AS span FROM bid)
  GROUP BY auction, span.start
)
SELECT c.begins, c.auction, c.bids
FROM counted c
JOIN (SELECT begins, max(bids) AS most FROM counted GROUP BY begins) m
  ON c.begins = m.begins AND c.bids = m.most;
