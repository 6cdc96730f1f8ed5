-- What every act shares; put before each of them. A record is msgpack of {task, holder, holder, ...}, a holder is
-- {series, task id, run, phase, until, stop, token, hops, place, from}; until, stop: ms on the server's clock, the only one
-- there is; stop: 0, or the end of the period for which the holder stays whatever becomes of its run; token: before its first
-- run, the second since which it waits, below zero; hops: messages of the series that are not known to be spent, newest first;
-- place: of one that waits, where its message can be looked for; from: the second from which it may be picked up there; nil: at
-- once, or nowhere.
-- Phases: W waiting, R running, F running and freed (refuses nobody), K kept until stop.
local SERIES, ID, RUN, PHASE, UNTIL, STOP, TOKEN, HOPS, PLACE, FROM = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local FORGET_AFTER = 3600000  -- ms that a record outlives its last deadline when nobody reaps

local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local waits_since = -math.floor(now_us / 1000000)

local SHAPE = {'number', 'string', 'string', 'string', 'number', 'number', 'number', 'table'}

-- nil for what is not a record of ours
local function decode(raw)
  local ok, rec = pcall(cmsgpack.unpack, raw)
  if not ok or type(rec) ~= 'table' or type(rec[1]) ~= 'string' or #rec < 2 then return nil end
  for i = 2, #rec do
    for place, kind in ipairs(SHAPE) do
      if type(rec[i]) ~= 'table' or type(rec[i][place]) ~= kind then return nil end
    end
    if not string.find('WRFK', rec[i][PHASE], 1, true) or type(rec[i][HOPS][1]) ~= 'number' then return nil end
  end
  return rec
end

local function load(key, task)
  local raw = redis.call('GET', key)
  if not raw then return {task} end
  return decode(raw) or error('FOREIGN value at key ' .. key)
end

local function save(key, due, digest, rec)
  if #rec == 1 then
    redis.call('DEL', key)
    redis.call('ZREM', due, digest)
    return
  end
  local first, last = rec[2][UNTIL], rec[2][UNTIL]
  for i = 3, #rec do
    first, last = math.min(first, rec[i][UNTIL]), math.max(last, rec[i][UNTIL])
  end
  redis.call('SET', key, cmsgpack.pack(rec), 'PXAT', last + FORGET_AFTER)
  redis.call('ZADD', due, first, digest)
end

local function find(rec, series)
  for i = 2, #rec do
    if rec[i][SERIES] == series then return rec[i], i end
  end
end

-- Whether a holder that has run stays until the end of its period, and then it does.
local function kept(h, ran)
  if h[STOP] <= now or h[PHASE] == 'F' or not (ran or h[TOKEN] > 0) then return false end
  h[PHASE], h[UNTIL] = 'K', h[STOP]
  return true
end

-- Drop every holder whose deadline has passed, except `spare`; answers {id, phase} of each one that held until then, and
-- whether the record has changed.
local function sweep(rec, spare)
  local dropped, changed = {}, false
  for i = #rec, 2, -1 do
    local h = rec[i]
    if h[UNTIL] <= now and h ~= spare then
      changed = true
      if not kept(h) then
        table.remove(rec, i)
        if h[PHASE] ~= 'F' then dropped[#dropped + 1] = {h[ID], h[PHASE]} end
      end
    end
  end
  return dropped, changed
end

-- Whether a holder is in one of `phases`.
local function among(h, phases)
  return string.find(phases, h[PHASE], 1, true) ~= nil
end

-- The first holder but `own` in one of `phases`, and how many there are; for a publish, one that runs beyond the end of its
-- period does not count.
local function others(rec, own, phases, publish)
  local first, n = nil, 0
  for i = 2, #rec do
    local h = rec[i]
    local over = publish and h[STOP] > 0 and h[STOP] <= now
    if h ~= own and among(h, phases) and not over then first, n = first or h, n + 1 end
  end
  return first, n
end

-- Say where the message of a holder that waits can be looked for, and in how many ms it may be picked up; '': nowhere.
local function put(h, place, ms)
  h[FROM], h[PLACE] = nil, nil
  if place ~= '' then h[PLACE], h[FROM] = place, ms > 0 and math.ceil((now + ms) / 1000) or nil end
end

local function runs(h)
  return h[PHASE] == 'R' or h[PHASE] == 'F'
end

local function has(hops, hop)
  for _, h in ipairs(hops) do
    if h == hop then return true end
  end
  return false
end

local function next_token(key)
  local token = math.max((tonumber(redis.call('GET', key) or 0)) + 1, now_us)
  redis.call('SET', key, token)
  return token
end

-- The done memory: a member lives for one to two windows. It has two generations, so that forgetting costs nothing.
local function remembered(young, old, member)
  return redis.call('SISMEMBER', young, member) == 1 or redis.call('SISMEMBER', old, member) == 1
end

local function remember(young, old, member, window)
  local ttl = redis.call('PTTL', young)
  if ttl >= 0 and ttl <= window then
    redis.call('RENAME', young, old)
    ttl = -2
  end
  redis.call('SADD', young, member)
  if ttl < 0 then redis.call('PEXPIRE', young, 2 * window) end
end
