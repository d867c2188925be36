-- In a cluster: writes the rows of a piece that are in one slot, once.
-- KEYS: the key that says what was written in this slot, then the keys of the rows.
-- ARGV: the piece's place among all pieces, as text that sorts; the rows; seconds after which a
-- query that runs once is forgotten, or nothing.
local written = redis.call('GET', KEYS[1])
if written and written >= ARGV[1] then return { 'done' } end
local piece = cmsgpack.unpack(ARGV[2])
local wrong = wrong_type(piece)
if wrong then return wrong end
-- A server that is full or read-only refuses this before anything is written: PUBLISH alone would
-- not be refused.
redis.call('SET', KEYS[1], written or '')
write(piece)
redis.call('SET', KEYS[1], ARGV[1])
if ARGV[3] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
return { 'ok' }
