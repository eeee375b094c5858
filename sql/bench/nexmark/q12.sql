-- How many bids each person made in ten seconds.
SELECT bidder, begins, count(*) AS bids
FROM (SELECT bidder, window(at, '10 seconds').start AS begins FROM bid)
GROUP BY bidder, begins;
