-- q12: bids of each bidder in windows of the clock. A micro-batch every two seconds reads one of
-- the eight files, so that there are several windows; when no rows come any more, the watermark
-- follows the clock and closes the last.

CREATE TABLE events (event_type INT, bid STRUCT<bidder: BIGINT>)
USING json OPTIONS ('path' = 'events', 'maxFilesPerTrigger' = '1', 'mode' = 'FAILFAST');

CREATE TABLE q12 USING json LOCATION 'q12'
OPTIONS ('trigger' = '2 seconds', 'watermarkAdvanceAfter' = '1 second', 'commitInterval' = '0');

CREATE FLOW q12 AS INSERT INTO q12
SELECT bidder, count(*) AS bid_count, window.start AS starttime, window.end AS endtime
FROM (
  SELECT bid.bidder AS bidder, current_timestamp() AS p_time
  FROM STREAM events WHERE event_type = 2)
WATERMARK p_time DELAY OF INTERVAL 0 SECONDS
GROUP BY bidder, window(p_time, '10 seconds');
