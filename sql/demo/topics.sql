-- name: connection
CREATE CONNECTION broker TO KAFKA (BROKER '${address}', SECURITY PROTOCOL 'PLAINTEXT');

-- name: airlines
CREATE SOURCE airlines (name STRING)
FROM KAFKA CONNECTION broker (TOPIC 'airlines')
KEY FORMAT TEXT VALUE FORMAT JSON INCLUDE KEY AS carrier ENVELOPE UPSERT
WITH (TIMESTAMP INTERVAL '100ms');

-- name: flights
CREATE SOURCE flights (
  carrier STRING, month INT, day INT, dep_time INT, dep_delay INT, distance INT)
FROM KAFKA CONNECTION broker (TOPIC 'flights')
FORMAT JSON
WITH (TIMESTAMP INTERVAL '100ms');

-- name: carrier_days
CREATE MATERIALIZED VIEW carrier_days AS ${query};

-- name: carriers
CREATE MATERIALIZED VIEW carriers AS ${query};

-- name: sink
CREATE SINK carriers_out FROM carriers
INTO KAFKA CONNECTION broker (TOPIC 'carriers')
KEY (carrier) KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT;

-- name: progress
SELECT * FROM flights_progress ORDER BY partition NULLS LAST;

-- name: read_airline
SELECT airline, flights FROM carriers WHERE carrier = 'US';
