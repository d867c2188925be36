-- Applies the first staged piece of a micro-batch that is decided, and removes it.
-- KEYS: the record of progress, the staged pieces. ARGV: query, claim.
-- Gives 'done' when no piece is left.
local held = redis.call('HMGET', KEYS[1], ARGV[1] .. ':claim', ARGV[1] .. ':staged')
if held[1] ~= ARGV[2] then return { 'claim', held[1] or '' } end
if not held[2] then return { 'done' } end
local packed = redis.call('LINDEX', KEYS[2], 0)
if packed then
  local piece = cmsgpack.unpack(packed)
  local wrong = wrong_type(piece)
  if wrong then return wrong end
  -- A server that is full or read-only refuses this, which changes nothing, before anything is
  -- written: PUBLISH alone would not be refused.
  redis.call('HSET', KEYS[1], ARGV[1] .. ':claim', ARGV[2])
  write(piece)
  redis.call('LPOP', KEYS[2])
end
if redis.call('LLEN', KEYS[2]) > 0 then return { 'ok' } end
redis.call('HDEL', KEYS[1], ARGV[1] .. ':staged')
return { 'done' }
