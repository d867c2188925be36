-- Queries that rank rows, or aggregate what was aggregated, without any window: no stream does
-- that in Spark. They are batch queries here, over tables that streams of streams.sql have written.

CREATE TABLE bids_in_time USING parquet LOCATION 'bids_in_time';
CREATE TABLE bids USING parquet LOCATION 'bids';

-- The average winning bid of each category.
CREATE TABLE q4 USING parquet LOCATION 'q4';
CREATE FLOW q4 AS INSERT INTO q4
SELECT category, avg(final) AS final FROM (
  SELECT category, max(price) AS final FROM bids_in_time GROUP BY id, category)
GROUP BY category;

-- The average of a seller's last winning bids: the current one and ten before it.
CREATE TABLE q6 USING parquet LOCATION 'q6';
CREATE FLOW q6 AS INSERT INTO q6
SELECT seller, bid_dateTime, avg(price) OVER (
  PARTITION BY seller ORDER BY bid_dateTime ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS avg_price
FROM (
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime) AS place
  FROM bids_in_time)
WHERE place = 1;

-- The winning bids.
CREATE TABLE q9 USING parquet LOCATION 'q9';
CREATE FLOW q9 AS INSERT INTO q9
SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, extra,
  auction, bidder, price, bid_dateTime, bid_extra
FROM (
  SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_dateTime) AS place
  FROM bids_in_time)
WHERE place = 1;

-- The last bid of each bidder on an auction.
CREATE TABLE q18 USING parquet LOCATION 'q18';
CREATE FLOW q18 AS INSERT INTO q18
SELECT auction, bidder, price, channel, url, dateTime, extra FROM (
  SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS rank_number
  FROM bids)
WHERE rank_number <= 1;

-- The ten highest bids on each auction; of equal ones the earlier is higher.
CREATE TABLE q19 USING parquet LOCATION 'q19';
CREATE FLOW q19 AS INSERT INTO q19
SELECT auction, bidder, price, channel, url, dateTime, extra, rank_number FROM (
  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime) AS rank_number
  FROM bids)
WHERE rank_number <= 10;
