-- What all scripts share. A piece of rows is packed by MessagePack:
-- { model, seconds to live or false, columns of a row, names of its fields, cells }.
-- Cells are texts, or false for NULL; the first of each row is its key.

local wanted_types = { hash = 'hash', list = 'list', set = 'set', stream = 'stream' }

-- What is against this write, or nil.
local function refusal(record, query, claim, before, number)
  local held = redis.call('HMGET', record, query .. ':claim', query .. ':batch',
    query .. ':staged')
  if held[1] ~= claim then return { 'claim', held[1] or '' } end
  local batch = held[2] or ''
  -- A replica that took over may lack the newest writes: pieces of this micro-batch, or of the one
  -- before, wait there.
  if batch == number then return { held[3] and 'unapplied' or 'done' } end
  if batch ~= before then return { 'at', batch } end
  if held[3] then return { 'unapplied' } end
  return nil
end

-- The first key that holds something of another type, or nil. Redis rolls nothing back, so this
-- is looked at before anything is written.
local function wrong_type(piece)
  local wanted, width, cells = wanted_types[piece[1]], piece[3], piece[5]
  if not wanted then return nil end
  local seen = {}
  for at = 1, #cells, width do
    local key = cells[at]
    if not seen[key] then
      seen[key] = true
      local found = redis.call('TYPE', key).ok
      if found ~= 'none' and found ~= wanted then return { 'type', found, key } end
    end
  end
  return nil
end

local writers = {}

function writers.hash(key, cells, at, width, names)
  local set, gone = {}, {}
  for column = 1, width - 1 do
    local cell = cells[at + column]
    if cell then
      set[#set + 1] = names[column]
      set[#set + 1] = cell
    else
      gone[#gone + 1] = names[column]
    end
  end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end
end

function writers.stream(key, cells, at, width, names)
  local set = {}
  for column = 1, width - 1 do
    local cell = cells[at + column]
    if cell then
      set[#set + 1] = names[column]
      set[#set + 1] = cell
    end
  end
  redis.call('XADD', key, '*', unpack(set))
end

function writers.string(key, cells, at)
  local cell = cells[at + 1]
  if cell then redis.call('SET', key, cell) else redis.call('DEL', key) end
end

function writers.list(key, cells, at) redis.call('RPUSH', key, cells[at + 1]) end
function writers.set(key, cells, at) redis.call('SADD', key, cells[at + 1]) end
function writers.publish(key, cells, at) redis.call('PUBLISH', key, cells[at + 1]) end

local function write(piece)
  local model, ttl, width, names, cells = piece[1], piece[2], piece[3], piece[4], piece[5]
  local writer = writers[model]
  -- A user who may not do this is refused before anything is written. A key that is not there
  -- stays so.
  if ttl and model ~= 'publish' and cells[1] then redis.call('EXPIRE', cells[1], ttl) end
  for at = 1, #cells, width do
    local key = cells[at]
    writer(key, cells, at, width, names)
    if ttl and model ~= 'publish' then redis.call('EXPIRE', key, ttl) end
  end
end
