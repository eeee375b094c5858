-- Revenue by customer: a view over a join, kept up to date, and a view over that view.
--
-- Below a query stands what it returns.

CREATE TABLE customers (id INT NOT NULL, name STRING, country STRING);
CREATE TABLE orders (id INT NOT NULL, customer INT, amount DECIMAL(10,2)) WITH (RETAIN HISTORY FOR '1 hour');

CREATE MATERIALIZED VIEW revenue AS
SELECT c.name, c.country, count(*) AS orders, sum(o.amount) AS amount
FROM orders o JOIN customers c ON o.customer = c.id
GROUP BY c.name, c.country;

CREATE MATERIALIZED VIEW revenue_by_country AS
SELECT country, sum(orders) AS orders, sum(amount) AS amount FROM revenue GROUP BY country;

INSERT INTO customers VALUES (1, 'ann', 'NO'), (2, 'bob', 'NO'), (3, 'eve', 'DK');
INSERT INTO orders VALUES (1, 1, 10), (2, 2, 5), (3, 1, 2.5), (4, 3, 7);

SELECT * FROM revenue ORDER BY name;
-- name | country | orders | amount
-- ann  | NO      | 2      | 12.50
-- bob  | NO      | 1      | 5.00
-- eve  | DK      | 1      | 7.00

-- A customer moves: both views follow, and no query ever sees only one of them changed.

UPDATE customers SET country = 'DK' WHERE name = 'bob';

SELECT * FROM revenue_by_country ORDER BY country;
-- country | orders | amount
-- DK      | 2      | 12.00
-- NO      | 2      | 12.50

DELETE FROM orders WHERE id = 4;

SELECT country, orders FROM revenue_by_country ORDER BY country;
-- country | orders
-- DK      | 1
-- NO      | 2
