-- Who came and sold something within the same ten seconds.
SELECT DISTINCT p.id, p.name, p.begins
FROM (SELECT id, name, window(at, '10 seconds').start AS begins FROM person) p
JOIN (SELECT seller, window(at, '10 seconds').start AS begins FROM auction) a
  ON p.id = a.seller AND p.begins = a.begins;
