-- name: airlines
CREATE TABLE airlines (carrier STRING NOT NULL, name STRING)
WITH (RETAIN HISTORY FOR '1 hour');

-- name: airports
CREATE TABLE airports (
  faa STRING NOT NULL, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING);

-- name: planes
CREATE TABLE planes (
  tailnum STRING NOT NULL, year INT, type STRING, manufacturer STRING, model STRING,
  engines INT, seats INT, speed INT, engine STRING);

-- name: weather
CREATE TABLE weather (
  origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,
  wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
  time_hour TIMESTAMP);

-- name: flights
CREATE SOURCE flights (
  year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
  sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
  dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP)
FROM FILES (PATH '${feed}', FORMAT CSV, HEADER true, NULL 'NA')
WITH (TIMESTAMP INTERVAL '100ms', RETAIN HISTORY FOR '1 hour');

-- name: carrier_days
CREATE MATERIALIZED VIEW carrier_days AS ${query};

-- name: carriers
CREATE MATERIALIZED VIEW carriers WITH (RETAIN HISTORY FOR '1 hour') AS ${query};

-- name: fleet
CREATE MATERIALIZED VIEW fleet AS ${query};

-- name: rain
CREATE MATERIALIZED VIEW rain AS ${query};

-- name: destinations
CREATE MATERIALIZED VIEW destinations AS ${query};

-- name: consistent
SELECT count(*) AS carriers, sum(v.flights) AS flights,
       count_if(v.flights <> b.flights OR NOT v.delay_minutes <=> b.delay_minutes) AS differences
FROM carriers v
FULL OUTER JOIN (
  SELECT carrier, count(*) AS flights, sum(dep_delay) AS delay_minutes FROM flights GROUP BY carrier
) b ON v.carrier = b.carrier;

-- name: now
SELECT mz_now() AS time, coalesce(sum(flights), 0) AS flights FROM carriers;

-- name: then
SELECT sum(v.flights) AS in_the_view, max(b.flights) AS in_the_source
FROM carriers v CROSS JOIN (SELECT count(*) AS flights FROM flights) b
AS OF ${time};

-- name: explain_timestamp
EXPLAIN TIMESTAMP FOR SELECT * FROM carriers JOIN flights USING (carrier);

-- name: explain_incremental
EXPLAIN INCREMENTAL FOR MATERIALIZED VIEW carrier_days;

-- name: sink
CREATE SINK carriers_out FROM carriers INTO FILES (PATH '${sink}', FORMAT JSON);

-- name: rename_airline
UPDATE airlines SET name = '${name}' WHERE carrier = 'US';

-- name: read_airline
SELECT airline, flights FROM carriers WHERE carrier = 'US';

-- name: scrap_planes
DELETE FROM planes WHERE year < 1980;

-- name: merge_planes
MERGE INTO planes p
USING (SELECT 'N14228' AS tailnum, 150 AS seats UNION ALL SELECT 'N99999', 4) n
ON p.tailnum = n.tailnum
WHEN MATCHED THEN UPDATE SET p.seats = n.seats
WHEN NOT MATCHED THEN INSERT (tailnum, year, type, manufacturer, model, engines, seats, speed, engine)
  VALUES (n.tailnum, 2013, 'Fixed wing single engine', 'CESSNA', '172S', 1, n.seats, NULL, 'Reciprocating');

-- name: begin
BEGIN;

-- name: new_airline
INSERT INTO airlines VALUES ('SW', 'Slackwater Air');

-- name: new_plane
INSERT INTO planes VALUES ('N0TIDE', 2013, 'Fixed wing multi engine', 'AIRBUS', 'A320', 2, 180, NULL, 'Turbo-fan');

-- name: commit
COMMIT;
