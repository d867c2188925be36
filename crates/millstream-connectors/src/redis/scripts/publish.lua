-- Writes a micro-batch whose rows are one piece, and its progress.
-- KEYS: the record of progress. ARGV: query, claim, micro-batch before, this one, record, piece.
local against = refusal(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if against then return against end
local piece = cmsgpack.unpack(ARGV[6])
local wrong = wrong_type(piece)
if wrong then return wrong end
-- A server that is full or read-only refuses this, which changes nothing, before anything is
-- written: PUBLISH alone would not be refused.
redis.call('HSET', KEYS[1], ARGV[1] .. ':claim', ARGV[2])
write(piece)
redis.call('HSET', KEYS[1], ARGV[1] .. ':batch', ARGV[4], ARGV[1] .. ':record', ARGV[5])
return { 'ok' }
