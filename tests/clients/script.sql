CREATE SCHEMA slackwater.shop;
USE slackwater.shop;
CREATE TABLE customers (name STRING NOT NULL, country STRING);
CREATE TABLE orders (id INT, customer STRING, amount DECIMAL(10,2)) WITH (RETAIN HISTORY FOR '1 hour');
-- a comment; with a semicolon
INSERT INTO customers VALUES ('ann', 'at'), ('bob', 'de'), ('eve', NULL);
INSERT INTO orders VALUES (1, 'ann', 10), (2, 'bob', 5.25), (3, 'ann', 2.5);
CREATE VIEW with_country AS
SELECT o.id, o.amount, c.country FROM orders o JOIN customers c ON o.customer = c.name;
CREATE MATERIALIZED VIEW revenue AS
SELECT country, count(*) AS orders, sum(amount) AS amount FROM with_country GROUP BY country;
CREATE MATERIALIZED VIEW total AS SELECT sum(orders) AS orders, sum(amount) AS amount FROM revenue;
SELECT * FROM revenue ORDER BY country;
SELECT * FROM total;
UPDATE orders SET amount = amount + 1 WHERE customer = 'ann';
SELECT * FROM total;
DELETE FROM orders WHERE id = 2;
SELECT * FROM revenue ORDER BY country;
MERGE INTO customers t USING (SELECT 'ann' AS name, 'ch' AS country UNION ALL SELECT 'zoe', 'fr') s
ON t.name = s.name
WHEN MATCHED THEN UPDATE SET t.country = s.country
WHEN NOT MATCHED THEN INSERT (name, country) VALUES (s.name, s.country);
SELECT * FROM customers ORDER BY name;
SELECT * FROM revenue ORDER BY country;
SELECT r.orders - b.orders AS difference
FROM (SELECT sum(orders) AS orders FROM revenue) r CROSS JOIN (SELECT count(*) AS orders FROM with_country) b;
SELECT count(*) FROM total AS OF AT LEAST 1;
SELECT 1 AS of;
BEGIN;
INSERT INTO orders VALUES (4, 'zoe', 1);
INSERT INTO customers VALUES ('new', 'us');
COMMIT;
SELECT * FROM total;
SHOW MATERIALIZED VIEWS;
SHOW VIEWS;
CREATE INDEX by_country ON revenue (country);
SHOW INDEXES;
SELECT * FROM revenue WHERE country = 'NO';
SELECT * FROM revenue WHERE country IN ('DK', 'NO', 'xx') ORDER BY country;
DROP INDEX by_country;
CREATE SECRET pw AS 'hidden';
CREATE CONNECTION `the topics` TO KAFKA (BROKERS ('h:1', 'i:2'), SASL MECHANISMS 'PLAIN', SASL USERNAME 'u', SASL PASSWORD SECRET pw) WITH (VALIDATE = false);
-- @error SLACKWATER_INVALID_OPTION 22023
CREATE CONNECTION other TO KAFKA (BROKER 'h', SASL PASSWORD 'hidden');
SHOW CONNECTIONS;
ALTER CONNECTION `the topics` SET (BROKER = '127.0.0.1:1') WITH (VALIDATE = false);
-- @error SLACKWATER_CONNECTION_FAILED 08001
VALIDATE CONNECTION `the topics`;
SHOW CREATE CONNECTION `the topics`;
-- @error SLACKWATER_DEPENDENT_OBJECTS 2BP01
DROP SECRET pw;
DROP CONNECTION `the topics`;
EXPLAIN TIMESTAMP FOR SELECT * FROM total;
EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW revenue;
SET transaction_isolation = 'serializable';
SHOW transaction_isolation;
RESET transaction_isolation;
-- @error SLACKWATER_NO_VALID_TIMESTAMP 22000
SELECT * FROM orders AS OF 1;
-- @error SLACKWATER_INVALID_AS_OF 22023
SELECT * FROM orders AS OF 'soon';
-- @error SLACKWATER_NO_VALID_TIMESTAMP 22000
SELECT * FROM orders CHANGES FROM VERSION 1;
-- @error SLACKWATER_CHANGES_BOUNDS 22000
SELECT * FROM orders CHANGES FROM VERSION 2 TO VERSION 1;
SET max_query_result_size = '1 kB';
-- @error SLACKWATER_RESULT_SIZE 53200
SELECT orders.id, more.id FROM orders, range(100) AS more;
RESET max_query_result_size;
-- @error SLACKWATER_READ_ONLY_RELATION 42809
INSERT INTO revenue VALUES ('xx', 1, 1);
-- @error SLACKWATER_DEPENDENT_OBJECTS 2BP01
DROP TABLE orders;
-- @error SLACKWATER_SYNTAX_ERROR 42601
CREATE SOURCE s FROM NOWHERE;
-- @error SLACKWATER_UNKNOWN_OBJECT 42704
DROP SINK nothing;
-- @error SLACKWATER_UNSUPPORTED 0A000
CREATE SOURCE s FROM MYSQL CONNECTION k;
-- @error TABLE_OR_VIEW_NOT_FOUND 42P01
SELECT * FROM nothing;
-- @error SLACKWATER_NOT_NULL_VIOLATION 23502
INSERT INTO customers VALUES (NULL, 'xx');
DROP MATERIALIZED VIEW revenue CASCADE;
-- @error TABLE_OR_VIEW_NOT_FOUND 42P01
SELECT * FROM total;
DROP SCHEMA slackwater.shop CASCADE;
