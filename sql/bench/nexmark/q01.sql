-- Prices in another currency.
SELECT auction, bidder, CAST(price AS DECIMAL(18, 3)) * 0.908 AS price, at FROM bid;
