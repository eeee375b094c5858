-- Who leads each auction: the greatest bid, joined with what it is a bid for.

CREATE TABLE auctions (id INT NOT NULL, item STRING, reserve INT);
CREATE TABLE bids (auction INT, buyer STRING, amount INT);

CREATE MATERIALIZED VIEW best AS
SELECT auction, max(amount) AS amount FROM bids GROUP BY auction;

CREATE MATERIALIZED VIEW leaders AS
SELECT a.item, b.buyer, b.amount, b.amount >= a.reserve AS reserve_met
FROM auctions a
JOIN best m ON m.auction = a.id
JOIN bids b ON b.auction = m.auction AND b.amount = m.amount;

CREATE MATERIALIZED VIEW without_bids AS
SELECT item FROM auctions a WHERE NOT EXISTS (SELECT 1 FROM bids b WHERE b.auction = a.id);

INSERT INTO auctions VALUES (1, 'lamp', 50), (2, 'chair', 20), (3, 'clock', 10);
INSERT INTO bids VALUES (1, 'ann', 30), (1, 'bob', 40), (2, 'ann', 25);

SELECT * FROM leaders ORDER BY item;
-- item  | buyer | amount | reserve_met
-- chair | ann   | 25     | true
-- lamp  | bob   | 40     | false

SELECT * FROM without_bids;
-- item
-- clock

-- The best bid is withdrawn: the one before leads again.

DELETE FROM bids WHERE buyer = 'bob';
INSERT INTO bids VALUES (3, 'eve', 11);

SELECT * FROM leaders ORDER BY item;
-- item  | buyer | amount | reserve_met
-- chair | ann   | 25     | true
-- clock | eve   | 11     | true
-- lamp  | ann   | 30     | false

SELECT count(*) AS n FROM without_bids;
-- n
-- 0
