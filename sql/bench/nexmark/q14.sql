-- Computed columns, of some bids.
SELECT auction, bidder, CAST(price AS DECIMAL(18, 3)) * 0.908 AS price,
       CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day'
            WHEN hour(at) <= 6 OR hour(at) >= 20 THEN 'night' ELSE 'other' END AS time_of_day,
       length(replace(url, 'c', 'cc')) - length(url) AS letters
FROM bid
WHERE CAST(price AS DECIMAL(18, 3)) * 0.908 BETWEEN 1000 AND 50000;
