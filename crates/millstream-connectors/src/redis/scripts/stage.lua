-- Puts one piece of a larger micro-batch beside those before it; nobody reads it there.
-- KEYS: the record of progress, the staged pieces.
-- ARGV: query, claim, micro-batch before, this one, header, index of the piece, piece, and whether
-- all its keys are in this server, and so can be looked at.
local against = refusal(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if against then return against end
local index, header = tonumber(ARGV[6]), redis.call('LINDEX', KEYS[2], 0)
if header ~= ARGV[5] then
  if index > 0 then return { 'gone' } end
  redis.call('DEL', KEYS[2])
  redis.call('RPUSH', KEYS[2], ARGV[5])
end
local staged = redis.call('LLEN', KEYS[2]) - 1
if staged < index then return { 'gone' } end
if staged > index then return { 'ok' } end
local wrong = ARGV[8] == 'here' and wrong_type(cmsgpack.unpack(ARGV[7]))
if wrong then return wrong end
redis.call('RPUSH', KEYS[2], ARGV[7])
return { 'ok' }
