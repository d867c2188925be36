-- What each query of Nexmark gives over the events, computed by DuckDB: a view for each query.
--
-- The views are written from the suite's definitions, and otherwise than the streams are wherever
-- that is possible: `row_number` and not aggregates, gaps and not sessions, lists of windows.
-- Columns have the types that Spark's have.

CREATE VIEW event AS
SELECT event_type, CAST(dateTime AS TIMESTAMPTZ) AS dateTime, person, auction, bid
FROM read_json('events/*.json', format = 'newline_delimited', columns = {
  event_type: 'INTEGER', dateTime: 'VARCHAR',
  person: 'STRUCT(id BIGINT, name VARCHAR, emailAddress VARCHAR, creditCard VARCHAR,
    city VARCHAR, state VARCHAR, extra VARCHAR)',
  auction: 'STRUCT(id BIGINT, itemName VARCHAR, description VARCHAR, initialBid BIGINT,
    reserve BIGINT, expires VARCHAR, seller BIGINT, category BIGINT, extra VARCHAR)',
  bid: 'STRUCT(auction BIGINT, bidder BIGINT, price BIGINT, channel VARCHAR, url VARCHAR,
    extra VARCHAR)'});

CREATE TABLE person AS SELECT unnest(person), dateTime FROM event WHERE event_type = 0;

CREATE TABLE auction AS
SELECT * REPLACE (CAST(expires AS TIMESTAMPTZ) AS expires)
FROM (SELECT unnest(auction), dateTime FROM event WHERE event_type = 1);

CREATE TABLE bid AS SELECT unnest(bid), dateTime FROM event WHERE event_type = 2;

CREATE TABLE side_input AS
SELECT * FROM read_csv('side_input.csv', header = false,
  columns = {key: 'BIGINT', value: 'VARCHAR'});

-- Windows that the last events, four days after the others, do not close are never published.
CREATE MACRO is_closed(moment) AS moment < TIMESTAMPTZ '2026-01-06 00:00:00Z';

-- The start of the window of so many seconds that a time is in.
CREATE MACRO start_of(moment, seconds) AS make_timestamptz(
  epoch_us(moment) - epoch_us(moment) % (seconds * 1000000));

CREATE VIEW q0 AS SELECT auction, bidder, price, dateTime, extra FROM bid;

CREATE VIEW q1 AS
SELECT auction, bidder, CAST(CAST(price AS DECIMAL(18, 0)) * 0.908 AS DECIMAL(24, 3)) AS price,
  dateTime, extra
FROM bid;

CREATE VIEW q2 AS SELECT auction, price FROM bid WHERE mod(auction, 123) = 0;

CREATE VIEW q3 AS
SELECT name, city, state, auction.id
FROM auction, person
WHERE seller = person.id AND category = 10 AND (state = 'OR' OR state = 'ID' OR state = 'CA');

-- Bids while their auction was open, the best of each auction first.
CREATE VIEW ranked AS
SELECT auction.*, bid.auction, bid.bidder, bid.price, bid.dateTime AS bid_dateTime,
  bid.extra AS bid_extra,
  rank() OVER (PARTITION BY auction.id ORDER BY bid.price DESC, bid.dateTime) AS place
FROM auction SEMI JOIN bid ON bid.auction = auction.id, bid
WHERE bid.auction = auction.id AND bid.dateTime >= auction.dateTime
  AND bid.dateTime <= auction.expires;

CREATE VIEW q4 AS
SELECT category, avg(price) AS final FROM ranked WHERE place = 1 GROUP BY category;

CREATE VIEW counted AS
SELECT auction, start, count(*) AS num
FROM (
  SELECT auction, dateTime, unnest([start_of(dateTime, 2) - to_seconds(2 * back)
    for back in range(5)]) AS start
  FROM bid WHERE is_closed(dateTime))
GROUP BY auction, start;

CREATE VIEW q5 AS
SELECT auction, num FROM counted
QUALIFY rank() OVER (PARTITION BY start ORDER BY num DESC) = 1;

-- Beside each average the time of the bid that ends its rows.
CREATE VIEW q6 AS
SELECT this.seller, this.bid_dateTime, avg(other.price) AS avg_price
FROM (SELECT *, row_number() OVER (PARTITION BY seller ORDER BY bid_dateTime) AS number
  FROM ranked WHERE place = 1) AS this
JOIN (SELECT *, row_number() OVER (PARTITION BY seller ORDER BY bid_dateTime) AS number
  FROM ranked WHERE place = 1) AS other
ON this.seller = other.seller AND other.number BETWEEN this.number - 10 AND this.number
GROUP BY this.seller, this.bid_dateTime;

CREATE VIEW q7 AS
SELECT auction, bid.price, bidder, dateTime, extra
FROM bid
JOIN (
  SELECT start_of(dateTime, 10) AS start, max(price) AS price
  FROM bid WHERE is_closed(dateTime) GROUP BY ALL) AS best
ON best.price = bid.price AND dateTime >= start AND dateTime <= start + INTERVAL 10 SECONDS;

CREATE VIEW q8 AS
SELECT DISTINCT person.id, name, start_of(person.dateTime, 10) AS starttime
FROM person JOIN auction ON person.id = seller
WHERE start_of(person.dateTime, 10) = start_of(auction.dateTime, 10);

CREATE VIEW q9 AS SELECT * EXCLUDE (place) FROM (
  SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category,
    extra, auction, bidder, price, bid_dateTime, bid_extra, place
  FROM ranked)
WHERE place = 1;

CREATE VIEW q10 AS
SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt,
  strftime(dateTime, '%H:%M') AS hm
FROM bid;

CREATE VIEW q11 AS
SELECT bidder, count(*) AS bid_count, min(dateTime) AS starttime,
  max(dateTime) + INTERVAL 10 SECONDS AS endtime
FROM (
  SELECT bidder, dateTime, sum(CAST(begins AS INTEGER)) OVER (
    PARTITION BY bidder ORDER BY dateTime) AS session
  FROM (
    SELECT bidder, dateTime, coalesce(dateTime - lag(dateTime) OVER (
      PARTITION BY bidder ORDER BY dateTime) > INTERVAL 10 SECONDS, true) AS begins
    FROM bid WHERE is_closed(dateTime)))
GROUP BY bidder, session;

CREATE VIEW q13 AS
SELECT auction, bidder, price, dateTime, value
FROM bid JOIN side_input ON auction % 10000 = key;

CREATE VIEW q14 AS
SELECT auction, bidder, price, bidTimeType, dateTime, extra,
  CAST(len(regexp_extract_all(extra, 'c')) AS INTEGER) AS c_counts
FROM (
  SELECT *, CASE WHEN hour IN (7, 19) THEN 'otherTime' WHEN hour BETWEEN 8 AND 18 THEN 'dayTime'
    ELSE 'nightTime' END AS bidTimeType
  FROM (SELECT *, extract('hour' FROM dateTime) AS hour FROM q1))
WHERE price > 1000000 AND price < 50000000;

-- The price's rank, 1 to 3.
CREATE VIEW bid_of_day AS
SELECT *, strftime(dateTime, '%Y-%m-%d') AS day,
  1 + CAST(price >= 10000 AS INTEGER) + CAST(price >= 1000000 AS INTEGER) AS rank
FROM bid WHERE is_closed(dateTime);

CREATE VIEW q15 AS
SELECT day, count(*) AS total_bids,
  count(CASE rank WHEN 1 THEN 1 END) AS rank1_bids,
  count(CASE rank WHEN 2 THEN 1 END) AS rank2_bids,
  count(CASE rank WHEN 3 THEN 1 END) AS rank3_bids,
  CAST(count(DISTINCT bidder) AS INTEGER) AS total_bidders,
  CAST(count(DISTINCT CASE rank WHEN 1 THEN bidder END) AS INTEGER) AS rank1_bidders,
  CAST(count(DISTINCT CASE rank WHEN 2 THEN bidder END) AS INTEGER) AS rank2_bidders,
  CAST(count(DISTINCT CASE rank WHEN 3 THEN bidder END) AS INTEGER) AS rank3_bidders,
  CAST(count(DISTINCT auction) AS INTEGER) AS total_auctions,
  CAST(count(DISTINCT CASE rank WHEN 1 THEN auction END) AS INTEGER) AS rank1_auctions,
  CAST(count(DISTINCT CASE rank WHEN 2 THEN auction END) AS INTEGER) AS rank2_auctions,
  CAST(count(DISTINCT CASE rank WHEN 3 THEN auction END) AS INTEGER) AS rank3_auctions
FROM bid_of_day GROUP BY day;

CREATE VIEW q16 AS
SELECT channel, day, max(strftime(dateTime, '%H:%M')) AS minute, count(*) AS total_bids,
  count(CASE rank WHEN 1 THEN 1 END) AS rank1_bids,
  count(CASE rank WHEN 2 THEN 1 END) AS rank2_bids,
  count(CASE rank WHEN 3 THEN 1 END) AS rank3_bids,
  CAST(count(DISTINCT bidder) AS INTEGER) AS total_bidders,
  CAST(count(DISTINCT CASE rank WHEN 1 THEN bidder END) AS INTEGER) AS rank1_bidders,
  CAST(count(DISTINCT CASE rank WHEN 2 THEN bidder END) AS INTEGER) AS rank2_bidders,
  CAST(count(DISTINCT CASE rank WHEN 3 THEN bidder END) AS INTEGER) AS rank3_bidders,
  CAST(count(DISTINCT auction) AS INTEGER) AS total_auctions,
  CAST(count(DISTINCT CASE rank WHEN 1 THEN auction END) AS INTEGER) AS rank1_auctions,
  CAST(count(DISTINCT CASE rank WHEN 2 THEN auction END) AS INTEGER) AS rank2_auctions,
  CAST(count(DISTINCT CASE rank WHEN 3 THEN auction END) AS INTEGER) AS rank3_auctions
FROM bid_of_day GROUP BY channel, day;

CREATE VIEW q17 AS
SELECT auction, day, count(*) AS total_bids,
  count(CASE rank WHEN 1 THEN 1 END) AS rank1_bids,
  count(CASE rank WHEN 2 THEN 1 END) AS rank2_bids,
  count(CASE rank WHEN 3 THEN 1 END) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
  CAST(sum(price) AS BIGINT) AS sum_price
FROM bid_of_day GROUP BY auction, day;

CREATE VIEW q18 AS
SELECT auction, bidder, price, channel, url, dateTime, extra
FROM bid ANTI JOIN bid AS later
ON bid.auction = later.auction AND bid.bidder = later.bidder AND bid.dateTime < later.dateTime;

CREATE VIEW q18_by_day AS
SELECT auction, bidder, price, channel, url, dateTime, extra FROM bid_of_day
QUALIFY row_number() OVER (PARTITION BY bidder, auction, day ORDER BY dateTime DESC) = 1;

-- The suite does not say which of several equal prices is higher: here the earlier.
CREATE VIEW q19 AS
SELECT auction, bidder, price, channel, url, dateTime, extra, CAST(1 + (
    SELECT count(*) FROM bid AS other
    WHERE other.auction = bid.auction AND (other.price > bid.price
      OR other.price = bid.price AND other.dateTime < bid.dateTime)) AS INTEGER) AS rank_number
FROM bid WHERE rank_number <= 10;

CREATE VIEW q19_by_day AS
SELECT auction, bidder, price, channel, url, dateTime, extra, CAST(row_number() OVER (
  PARTITION BY auction, day ORDER BY price DESC, dateTime) AS INTEGER) AS rank_number
FROM bid_of_day
QUALIFY rank_number <= 10;

CREATE VIEW q20 AS
SELECT auction, bidder, price, channel, url, bid.dateTime AS bid_dateTime, bid.extra AS bid_extra,
  itemName, description, initialBid, reserve, auction.dateTime AS auction_dateTime, expires, seller,
  category, auction.extra AS auction_extra
FROM bid, auction
WHERE auction = id AND category = 10;

CREATE VIEW q21 AS
SELECT auction, bidder, price, channel, coalesce(CAST(place - 1 AS VARCHAR), of_url) AS channel_id
FROM (
  SELECT *, list_position(['apple', 'google', 'facebook', 'baidu'], lower(channel)) AS place,
    split_part(url, '&channel_id=', 2).split_part('&', 1) AS of_url
  FROM bid)
WHERE place IS NOT NULL OR contains(url, '&channel_id=');

CREATE VIEW q22 AS
SELECT auction, bidder, price, channel, parts[4] AS dir1, parts[5] AS dir2, parts[6] AS dir3
FROM (SELECT *, string_split(url, '/') AS parts FROM bid);
