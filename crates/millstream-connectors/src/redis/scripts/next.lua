-- In a cluster: the next staged piece of a micro-batch that is decided. Removes the one before,
-- whose rows are in their slots.
-- KEYS: the record of progress, the staged pieces.
-- ARGV: query, claim, MICRO-BATCH:INDEX of the piece that is done, or nothing. A call that comes
-- late names a piece of an earlier micro-batch, and removes nothing.
-- Gives the micro-batch, the index of its piece, and the piece; 'done' when none is left.
local held = redis.call('HMGET', KEYS[1], ARGV[1] .. ':claim', ARGV[1] .. ':staged',
  ARGV[1] .. ':applied')
if held[1] ~= ARGV[2] then return { 'claim', held[1] or '' } end
if not held[2] then return { 'done' } end
local index = held[3] or '0'
if held[2] .. ':' .. index == ARGV[3] then
  redis.call('LPOP', KEYS[2])
  index = string.format('%.0f', tonumber(index) + 1)
  redis.call('HSET', KEYS[1], ARGV[1] .. ':applied', index)
end
local piece = redis.call('LINDEX', KEYS[2], 0)
if not piece then
  redis.call('HDEL', KEYS[1], ARGV[1] .. ':staged', ARGV[1] .. ':applied')
  return { 'done' }
end
return { 'piece', held[2], index, piece }
