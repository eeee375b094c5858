-- What has changed: a cursor over a SUBSCRIBE gives the contents first, then every change.

CREATE TABLE temperatures (sensor STRING, celsius INT);
CREATE MATERIALIZED VIEW hot AS SELECT sensor FROM temperatures WHERE celsius > 30;

INSERT INTO temperatures VALUES ('roof', 35), ('cellar', 12);

DECLARE alarms CURSOR FOR SUBSCRIBE (SELECT sensor FROM hot);

FETCH 1 alarms;
-- mz_timestamp | mz_diff | sensor
-- *            | 1       | roof

UPDATE temperatures SET celsius = 20 WHERE sensor = 'roof';

FETCH 1 alarms;
-- mz_timestamp | mz_diff | sensor
-- *            | -1      | roof

CLOSE alarms;
