-- What was bid on each auction, day by day.
SELECT auction, date(at) AS day, count(*) AS bids, min(price) AS lowest, max(price) AS highest,
       avg(price) AS average, sum(price) AS total
FROM bid GROUP BY auction, date(at);
