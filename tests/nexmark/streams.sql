-- The queries of Nexmark, each as a stream of its own over the events that events.py writes.
--
-- `append` is the only mode of files, so that the groups of a day are published when it is over:
-- q15 to q17. The suite's q18 and q19 rank the rows of all time, which is for tables.sql; here
-- they rank those of each day. Of q4, q6 and q9 a stream does the join, and tables.sql the rest.

CREATE TABLE events (event_type INT, dateTime TIMESTAMP,
  person STRUCT<id: BIGINT, name: STRING, emailAddress: STRING, creditCard: STRING, city: STRING,
    state: STRING, extra: STRING>,
  auction STRUCT<id: BIGINT, itemName: STRING, description: STRING, initialBid: BIGINT,
    reserve: BIGINT, expires: TIMESTAMP, seller: BIGINT, category: BIGINT, extra: STRING>,
  bid STRUCT<auction: BIGINT, bidder: BIGINT, price: BIGINT, channel: STRING, url: STRING,
    extra: STRING>)
USING json OPTIONS ('path' = 'events', 'maxFilesPerTrigger' = '1', 'mode' = 'FAILFAST');

CREATE TABLE side_input (key BIGINT, value STRING)
USING csv OPTIONS ('path' = 'side_input.csv', 'mode' = 'FAILFAST');

CREATE TEMPORARY VIEW person AS
SELECT person.*, dateTime
FROM STREAM events WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS WHERE event_type = 0;

CREATE TEMPORARY VIEW auction AS
SELECT auction.*, dateTime
FROM STREAM events WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS WHERE event_type = 1;

CREATE TEMPORARY VIEW bid AS
SELECT bid.*, dateTime
FROM STREAM events WATERMARK dateTime DELAY OF INTERVAL 4 SECONDS WHERE event_type = 2;

-- Pass through.
CREATE TABLE q0 USING parquet LOCATION 'q0';
CREATE FLOW q0 AS INSERT INTO q0
SELECT auction, bidder, price, dateTime, extra FROM bid;

-- Currency conversion.
CREATE TABLE q1 USING parquet LOCATION 'q1';
CREATE FLOW q1 AS INSERT INTO q1
SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid;

-- Selection.
CREATE TABLE q2 USING parquet LOCATION 'q2';
CREATE FLOW q2 AS INSERT INTO q2
SELECT auction, price FROM bid WHERE auction % 123 = 0;

-- Local item suggestion: a join without times, whose state stays.
CREATE TABLE q3 USING parquet LOCATION 'q3';
CREATE FLOW q3 AS INSERT INTO q3
SELECT p.name, p.city, p.state, a.id
FROM auction AS a JOIN person AS p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA');

-- Hot items: of each sliding window the auctions with the most bids.
CREATE TABLE q5 USING parquet LOCATION 'q5';
CREATE FLOW q5 AS INSERT INTO q5
SELECT counted.auction, counted.num FROM (
  SELECT auction, count(*) AS num, window FROM bid
  GROUP BY auction, window(dateTime, '10 seconds', '2 seconds')) AS counted
JOIN (
  SELECT max(num) AS num, window FROM (
    SELECT auction, count(*) AS num, window FROM bid
    GROUP BY auction, window(dateTime, '10 seconds', '2 seconds'))
  GROUP BY window) AS best
ON counted.window = best.window AND counted.num >= best.num;

-- The highest bids of each window, its end included.
CREATE TABLE q7 USING parquet LOCATION 'q7';
CREATE FLOW q7 AS INSERT INTO q7
SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra
FROM bid AS b
JOIN (SELECT max(price) AS price, window FROM bid GROUP BY window(dateTime, '10 seconds')) AS best
ON b.price = best.price AND b.dateTime BETWEEN best.window.start AND best.window.end;

-- New users who sell at once.
CREATE TABLE q8 USING parquet LOCATION 'q8';
CREATE FLOW q8 AS INSERT INTO q8
SELECT p.id, p.name, p.w.start AS starttime
FROM (
  SELECT id, name, window AS w FROM person GROUP BY id, name, window(dateTime, '10 seconds')) AS p
JOIN (
  SELECT seller, window AS w FROM auction GROUP BY seller, window(dateTime, '10 seconds')) AS a
ON p.id = a.seller AND p.w = a.w;

-- What tables.sql makes q4, q6 and q9 of: the bids of each auction while it was open. The times of
-- an auction's end are in no watermark, so that the state of this join stays.
CREATE TABLE bids_in_time USING parquet LOCATION 'bids_in_time';
CREATE FLOW bids_in_time AS INSERT INTO bids_in_time
SELECT a.*, b.auction, b.bidder, b.price, b.dateTime AS bid_dateTime, b.extra AS bid_extra
FROM auction AS a
JOIN bid AS b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires;

-- A log in a partitioned table.
CREATE TABLE q10 USING delta LOCATION 'q10' PARTITIONED BY (dt, hm);
CREATE FLOW q10 AS INSERT INTO q10
SELECT auction, bidder, price, dateTime, extra,
  date_format(dateTime, 'yyyy-MM-dd') AS dt, date_format(dateTime, 'HH:mm') AS hm
FROM bid;

-- Sessions of a user.
CREATE TABLE q11 USING parquet LOCATION 'q11';
CREATE FLOW q11 AS INSERT INTO q11
SELECT bidder, count(*) AS bid_count, session_window.start AS starttime,
  session_window.end AS endtime
FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds');

-- Join with a side input.
CREATE TABLE q13 USING parquet LOCATION 'q13';
CREATE FLOW q13 AS INSERT INTO q13
SELECT b.auction, b.bidder, b.price, b.dateTime, s.value
FROM bid AS b JOIN side_input AS s ON mod(b.auction, 10000) = s.key;

-- Calculation.
CREATE TABLE q14 USING parquet LOCATION 'q14';
CREATE FLOW q14 AS INSERT INTO q14
SELECT auction, bidder, 0.908 * price AS price,
  CASE WHEN hour(dateTime) >= 8 AND hour(dateTime) <= 18 THEN 'dayTime'
    WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
    ELSE 'otherTime' END AS bidTimeType,
  dateTime, extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- Bids, bidders and auctions of a day: a set's size, since a stream has no DISTINCT in aggregates.
CREATE TABLE q15 USING parquet LOCATION 'q15';
CREATE FLOW q15 AS INSERT INTO q15
SELECT date_format(window.start, 'yyyy-MM-dd') AS day,
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  size(collect_set(bidder)) AS total_bidders,
  size(collect_set(bidder) FILTER (WHERE price < 10000)) AS rank1_bidders,
  size(collect_set(bidder) FILTER (WHERE price >= 10000 AND price < 1000000)) AS rank2_bidders,
  size(collect_set(bidder) FILTER (WHERE price >= 1000000)) AS rank3_bidders,
  size(collect_set(auction)) AS total_auctions,
  size(collect_set(auction) FILTER (WHERE price < 10000)) AS rank1_auctions,
  size(collect_set(auction) FILTER (WHERE price >= 10000 AND price < 1000000)) AS rank2_auctions,
  size(collect_set(auction) FILTER (WHERE price >= 1000000)) AS rank3_auctions
FROM bid GROUP BY window(dateTime, '1 day');

-- The same of each channel.
CREATE TABLE q16 USING parquet LOCATION 'q16';
CREATE FLOW q16 AS INSERT INTO q16
SELECT channel, date_format(window.start, 'yyyy-MM-dd') AS day,
  max(date_format(dateTime, 'HH:mm')) AS minute,
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  size(collect_set(bidder)) AS total_bidders,
  size(collect_set(bidder) FILTER (WHERE price < 10000)) AS rank1_bidders,
  size(collect_set(bidder) FILTER (WHERE price >= 10000 AND price < 1000000)) AS rank2_bidders,
  size(collect_set(bidder) FILTER (WHERE price >= 1000000)) AS rank3_bidders,
  size(collect_set(auction)) AS total_auctions,
  size(collect_set(auction) FILTER (WHERE price < 10000)) AS rank1_auctions,
  size(collect_set(auction) FILTER (WHERE price >= 10000 AND price < 1000000)) AS rank2_auctions,
  size(collect_set(auction) FILTER (WHERE price >= 1000000)) AS rank3_auctions
FROM bid GROUP BY channel, window(dateTime, '1 day');

-- Bids of an auction on a day.
CREATE TABLE q17 USING parquet LOCATION 'q17';
CREATE FLOW q17 AS INSERT INTO q17
SELECT auction, date_format(window.start, 'yyyy-MM-dd') AS day,
  count(*) AS total_bids,
  count(*) FILTER (WHERE price < 10000) AS rank1_bids,
  count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS rank2_bids,
  count(*) FILTER (WHERE price >= 1000000) AS rank3_bids,
  min(price) AS min_price, max(price) AS max_price, avg(price) AS avg_price,
  sum(price) AS sum_price
FROM bid GROUP BY auction, window(dateTime, '1 day');

-- All bids, for the queries of tables.sql.
CREATE TABLE bids USING parquet LOCATION 'bids';
CREATE FLOW bids AS INSERT INTO bids SELECT * FROM bid;

-- The last bid of each bidder on an auction, of each day.
CREATE TABLE q18_by_day USING parquet LOCATION 'q18_by_day';
CREATE FLOW q18_by_day AS INSERT INTO q18_by_day
SELECT auction, bidder, last.price, last.channel, last.url, last.dateTime, last.extra FROM (
  SELECT auction, bidder,
    max_by(struct(price, channel, url, dateTime, extra), dateTime) AS last
  FROM bid GROUP BY bidder, auction, window(dateTime, '1 day'));

-- The ten highest bids on each auction, of each day; of equal ones the earlier is higher.
CREATE TABLE q19_by_day USING parquet LOCATION 'q19_by_day';
CREATE FLOW q19_by_day AS INSERT INTO q19_by_day
SELECT auction, top.bid.bidder, top.bid.price, top.bid.channel, top.bid.url,
  timestamp_micros(-top.bid.before) AS dateTime, top.bid.extra, top.place + 1 AS rank_number
FROM (
  SELECT auction, slice(sort_array(collect_list(struct(price, -unix_micros(dateTime) AS before,
    bidder, channel, url, extra)), false), 1, 10) AS bids
  FROM bid GROUP BY auction, window(dateTime, '1 day'))
LATERAL VIEW posexplode(bids) top AS place, bid;

-- Bids with their auctions, of one category.
CREATE TABLE q20 USING parquet LOCATION 'q20';
CREATE FLOW q20 AS INSERT INTO q20
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.dateTime AS bid_dateTime,
  b.extra AS bid_extra, a.itemName, a.description, a.initialBid, a.reserve,
  a.dateTime AS auction_dateTime, a.expires, a.seller, a.category, a.extra AS auction_extra
FROM bid AS b JOIN auction AS a ON b.auction = a.id
WHERE a.category = 10;

-- Channels, from a list or the URL.
CREATE TABLE q21 USING parquet LOCATION 'q21';
CREATE FLOW q21 AS INSERT INTO q21
SELECT auction, bidder, price, channel,
  CASE WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
    WHEN lower(channel) = 'facebook' THEN '2' WHEN lower(channel) = 'baidu' THEN '3'
    ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
FROM bid
WHERE url RLIKE '(&|^)channel_id=([^&]*)'
  OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu');

-- Directories of the URL; NULL where it has not so many.
CREATE TABLE q22 USING parquet LOCATION 'q22';
CREATE FLOW q22 AS INSERT INTO q22
SELECT auction, bidder, price, channel, get(split(url, '/'), 3) AS dir1,
  get(split(url, '/'), 4) AS dir2, get(split(url, '/'), 5) AS dir3
FROM bid;
