-- Four flows over two topics.
-- Orders of a shop: judged, settled, counted and labelled.

CREATE TABLE orders (
  id BIGINT, customer BIGINT, product STRING, amount DECIMAL(12, 2), quantity INT,
  country STRING, ts TIMESTAMP, tags ARRAY<STRING>, address STRUCT<city: STRING, zip: STRING>
)
USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'localhost:9092', 'subscribe' = 'orders', 'value.format' = 'json'
);
CREATE TABLE payments (order_id BIGINT, paid DECIMAL(12, 2), method STRING, at TIMESTAMP)
USING kafka OPTIONS (
  'kafka.bootstrap.servers' = 'localhost:9092', 'subscribe' = 'payments', 'value.format' = 'json'
);
CREATE TABLE warnings USING kafka
OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'warnings');
CREATE TABLE settled USING kafka
OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'settled');
CREATE TABLE per_minute USING kafka
OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'per_minute');
CREATE TABLE labels USING kafka
OPTIONS ('kafka.bootstrap.servers' = 'localhost:9092', 'topic' = 'labels');

CREATE FLOW warnings AS INSERT INTO warnings
SELECT to_json(struct(id, customer, amount, reason, ts)) AS value
FROM (
  SELECT *, CASE WHEN amount > 10000 THEN 'large'
                 WHEN quantity > 500 THEN 'many'
                 WHEN upper(country) NOT IN ('DE', 'FR', 'NL') THEN 'abroad' END AS reason
  FROM STREAM orders WHERE customer IS NOT NULL
) AS judged
WHERE reason IS NOT NULL AND product RLIKE '^[A-Z]{2}-[0-9]+$';

CREATE FLOW settled AS INSERT INTO settled
SELECT to_json(struct(o.id, o.amount, p.paid, p.method, p.paid - o.amount AS rest)) AS value
FROM STREAM orders WATERMARK ts DELAY OF INTERVAL 10 SECONDS AS o
JOIN STREAM payments WATERMARK at DELAY OF INTERVAL 10 SECONDS AS p
  ON o.id = p.order_id AND p.at BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR;

CREATE FLOW per_minute AS INSERT INTO per_minute
SELECT to_json(struct(window.start AS minute, country, count(*) AS n, sum(amount) AS total,
                      avg(quantity) AS mean, max(ts) AS newest)) AS value
FROM STREAM orders WATERMARK ts DELAY OF INTERVAL 10 SECONDS
GROUP BY window(ts, '1 minute'), country
HAVING count(*) > 10;

CREATE FLOW labels AS INSERT INTO labels
SELECT concat_ws('-', tag, address.city, address.zip) AS value
FROM STREAM orders LATERAL VIEW explode(tags) AS tag
WHERE length(tag) BETWEEN 2 AND 40;
