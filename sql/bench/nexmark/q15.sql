-- Bids, bidders and auctions of each day, by the size of the bid.
SELECT date(at) AS day, count(*) AS bids,
       count(*) FILTER (WHERE price < 10000) AS low,
       count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS middle,
       count(*) FILTER (WHERE price >= 1000000) AS high,
       count(DISTINCT bidder) AS bidders, count(DISTINCT auction) AS auctions
FROM bid GROUP BY date(at);
