-- The average price of each seller's last ten sales.
SELECT seller, at, id, avg(final) OVER (
  PARTITION BY seller ORDER BY at, id ROWS BETWEEN 9 PRECEDING AND CURRENT ROW
) AS price
FROM (
  SELECT a.seller, a.expires AS at, a.id, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.at BETWEEN a.at AND a.expires
  GROUP BY a.seller, a.expires, a.id
);
