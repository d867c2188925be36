-- Takes the query over: writers with the former claim are refused from now on.
-- KEYS: the record of progress, the staged pieces.
-- ARGV: query, token, the claim that the caller has found, or nothing.
-- Gives: claim, micro-batch, record, and whether pieces of that micro-batch wait to be applied; or
-- the claim that is held, where it is another one: a call of an earlier run that comes late takes
-- nothing from a later run.
local former = redis.call('HGET', KEYS[1], ARGV[1] .. ':claim') or ''
-- A claim that is sent again, or comes late, is the one that this run has.
local is_new = string.match(former, '^%d+%-(.*)$') ~= ARGV[2]
if is_new and former ~= ARGV[3] then return { 'claim', former } end
local claim = former
if is_new then
  local epoch = (tonumber(string.match(former, '^%d+') or '0')) + 1
  claim = string.format('%.0f', epoch) .. '-' .. ARGV[2]
end
redis.call('HSET', KEYS[1], ARGV[1] .. ':claim', claim)
local held = redis.call('HMGET', KEYS[1], ARGV[1] .. ':batch', ARGV[1] .. ':record',
  ARGV[1] .. ':staged')
if is_new and not held[3] then redis.call('DEL', KEYS[2]) end
return { 'ok', claim, held[1] or '', held[2] or '', held[3] or '' }
