-- Decides that the staged micro-batch is published: from here on its pieces are applied, by
-- whoever holds the claim.
-- KEYS: the record of progress, the staged pieces.
-- ARGV: query, claim, micro-batch before, this one, header, number of pieces, record.
local against = refusal(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if against then return against end
if redis.call('LINDEX', KEYS[2], 0) ~= ARGV[5]
  or redis.call('LLEN', KEYS[2]) - 1 ~= tonumber(ARGV[6]) then
  return { 'gone' }
end
redis.call('HSET', KEYS[1], ARGV[1] .. ':batch', ARGV[4], ARGV[1] .. ':record', ARGV[7],
  ARGV[1] .. ':staged', ARGV[4])
redis.call('HDEL', KEYS[1], ARGV[1] .. ':applied')
redis.call('LPOP', KEYS[2])
return { 'ok' }
