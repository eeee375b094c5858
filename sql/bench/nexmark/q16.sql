-- The same by channel.
SELECT channel, date(at) AS day, max(at) AS latest, count(*) AS bids,
       count(DISTINCT bidder) AS bidders,
       count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
       count(DISTINCT auction) AS auctions
FROM bid GROUP BY channel, date(at);
