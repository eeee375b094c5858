-- name: carrier_days
SELECT f.carrier, a.name AS airline, f.month, f.day,
       count(*) AS flights, count(f.dep_time) AS departed,
       sum(f.dep_delay) AS delay_minutes, sum(f.distance) AS miles
FROM ${flights} f JOIN ${airlines} a ON f.carrier = a.carrier
GROUP BY f.carrier, a.name, f.month, f.day;

-- name: carriers
SELECT carrier, airline, count(*) AS days, sum(flights) AS flights, sum(departed) AS departed,
       sum(delay_minutes) AS delay_minutes, sum(miles) AS miles
FROM ${carrier_days}
GROUP BY carrier, airline;

-- name: fleet
SELECT p.manufacturer, count(*) AS flights, sum(p.seats) AS seats, sum(f.air_time) AS air_minutes
FROM ${flights} f JOIN ${planes} p ON f.tailnum = p.tailnum
GROUP BY p.manufacturer;

-- name: rain
SELECT f.origin, w.precip > 0 AS raining, count(*) AS flights, count(f.dep_time) AS departed,
       sum(f.dep_delay) AS delay_minutes
FROM ${flights} f JOIN ${weather} w ON f.origin = w.origin AND f.time_hour = w.time_hour
GROUP BY f.origin, w.precip > 0;

-- name: destinations
SELECT d.name AS destination, count(*) AS flights, sum(f.arr_delay) AS delay_minutes
FROM ${flights} f JOIN ${airports} o ON f.origin = o.faa JOIN ${airports} d ON f.dest = d.faa
GROUP BY d.name;
