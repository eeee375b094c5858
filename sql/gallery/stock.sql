-- Goods in two warehouses: a move is two rows, and no reader ever sees one of them alone.

CREATE TABLE movements (item STRING, warehouse STRING, pieces INT);

CREATE MATERIALIZED VIEW stock AS
SELECT item, warehouse, sum(pieces) AS pieces FROM movements GROUP BY item, warehouse;

CREATE MATERIALIZED VIEW short AS
SELECT item, warehouse, pieces FROM stock WHERE pieces < 5;

CREATE MATERIALIZED VIEW total AS
SELECT count(*) AS movements, sum(pieces) AS pieces FROM movements;

-- A total without GROUP BY has one row, also where there is nothing to add up.

SELECT * FROM total;
-- movements | pieces
-- 0         | NULL

INSERT INTO movements VALUES ('bolt', 'north', 20), ('nut', 'north', 10);

BEGIN;
INSERT INTO movements VALUES ('bolt', 'north', -17);
INSERT INTO movements VALUES ('bolt', 'south', 17);
COMMIT;

SELECT * FROM stock ORDER BY item, warehouse;
-- item | warehouse | pieces
-- bolt | north     | 3
-- bolt | south     | 17
-- nut  | north     | 10

SELECT * FROM short;
-- item | warehouse | pieces
-- bolt | north     | 3

SELECT * FROM total;
-- movements | pieces
-- 4         | 30
