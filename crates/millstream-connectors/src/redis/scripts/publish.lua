-- Writes a micro-batch whose rows are one piece, and its progress.
-- KEYS: the record of progress. ARGV: query, claim, micro-batch before, this one, record, piece.
local against = refusal(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if against then return against end
local piece = cmsgpack.unpack(ARGV[6])
local wrong = wrong_type(piece)
if wrong then return wrong end
write(piece)
redis.call('HSET', KEYS[1], ARGV[1] .. ':batch', ARGV[4], ARGV[1] .. ':record', ARGV[5])
return { 'ok' }
