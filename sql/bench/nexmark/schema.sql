-- People sell items in auctions, on which others bid.
CREATE TABLE person (
  id BIGINT NOT NULL, name STRING, email STRING, city STRING, state STRING, at TIMESTAMP
);
CREATE TABLE auction (
  id BIGINT NOT NULL, item STRING, initial_bid BIGINT, reserve BIGINT, at TIMESTAMP,
  expires TIMESTAMP, seller BIGINT, category INT
);
CREATE TABLE bid (
  auction BIGINT NOT NULL, bidder BIGINT, price BIGINT, channel STRING, url STRING, at TIMESTAMP
);
