-- Between two environments lies a table of a lake: one writes it as a view is, the other follows it, version after
-- version. Any engine that knows Delta could stand on either side.

CREATE TABLE orders (id INT NOT NULL, customer STRING, amount DECIMAL(10, 2));

INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 5.00), (3, 'ann', 7.50);

CREATE MATERIALIZED VIEW spent AS
SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer;

CREATE SINK spent_table FROM spent INTO DELTA (PATH '/data/spent')
  KEY (customer) MODE UPSERT WITH (COMMIT INTERVAL '100ms');

CREATE SOURCE received FROM DELTA (PATH '/data/spent') WITH (TIMESTAMP INTERVAL '100ms');

SELECT * FROM received ORDER BY customer;
-- customer | amount
-- ann      | 17.50
-- bob      | 5.00

-- A commit of the table takes rows back and brings others, at one time here as well.

UPDATE orders SET amount = 12.00 WHERE id = 1;

DELETE FROM orders WHERE id = 2;

SELECT * FROM received ORDER BY customer;
-- customer | amount
-- ann      | 19.50
