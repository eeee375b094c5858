-- name: drop
DROP SCHEMA IF EXISTS slackwater.demo CASCADE;

-- name: schema
CREATE SCHEMA slackwater.demo COMMENT '${mark}';

-- name: use
USE slackwater.demo;
