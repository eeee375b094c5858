-- From a table into a topic, and from the topic into a view. Other programs write and read topics: here
-- the sink stands for one that writes. What a query returns is there as soon as the messages are.

CREATE CONNECTION broker TO KAFKA (BROKER 'localhost:9092', SECURITY PROTOCOL 'PLAINTEXT');

CREATE TABLE orders (id INT NOT NULL, customer STRING, amount DECIMAL(10, 2));

INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 5.00), (3, 'ann', 7.50);

CREATE SINK orders_out FROM orders INTO KAFKA CONNECTION broker (TOPIC 'orders_of_shops')
  KEY (id) KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT;

CREATE SOURCE received (customer STRING, amount DECIMAL(10, 2))
FROM KAFKA CONNECTION broker (TOPIC 'orders_of_shops')
KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY AS id ENVELOPE UPSERT
WITH (TIMESTAMP INTERVAL '100ms');

CREATE MATERIALIZED VIEW spent AS
SELECT customer, count(*) AS orders, sum(amount) AS amount FROM received GROUP BY customer;

SELECT * FROM spent ORDER BY customer;
-- customer | orders | amount
-- ann      | 2      | 17.50
-- bob      | 1      | 5.00

-- Another row is another message for its key, a deleted one a message without a value.

UPDATE orders SET amount = 12.00 WHERE id = 1;

DELETE FROM orders WHERE id = 2;

SELECT * FROM spent ORDER BY customer;
-- customer | orders | amount
-- ann      | 2      | 19.50

SELECT id, amount FROM received ORDER BY id;
-- id | amount
-- 1  | 12.00
-- 3  | 7.50
