-- The average of the highest valid bids, by category.
SELECT category, avg(final) AS price
FROM (
  SELECT a.id, a.category, max(b.price) AS final
  FROM auction a JOIN bid b ON a.id = b.auction
  WHERE b.at BETWEEN a.at AND a.expires
  GROUP BY a.id, a.category
) GROUP BY category;
