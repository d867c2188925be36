-- Puts the building table into Redis, a hash for each building: buildings:B1 and so on.
-- Any other program may keep them up to date: redis-cli HSET buildings:B1 guard 'Ada' ...
CREATE TABLE buildings_file (building STRING, address STRING, guard STRING, telephone STRING)
USING csv OPTIONS ('path' = 'buildings.csv', 'header' = 'true');

CREATE TABLE buildings USING redis
OPTIONS ('host' = 'localhost', 'port' = '6379', 'key.column' = 'building');

-- Without STREAM: once over all rows.
CREATE FLOW load AS INSERT INTO buildings
SELECT building, address, guard, telephone FROM buildings_file;
