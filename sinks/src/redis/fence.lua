-- Adds the amounts of a step to the counters of a lane and moves its fence, or changes nothing.
--
-- KEYS: the fence, the debt hash, then the counters.
-- ARGV: the key prefix, the fence expected, the fence after, its window, its epoch, then the amounts.
-- Returns {0, fence or false} when the fence stands elsewhere, else {1, keys set aside, {item, debt, ...}}.
--
-- Redis keeps what a script has written before it fails. So everything is read and checked first; the writes after
-- that cannot fail, and the fence is the last (I28).

local call, find = redis.call, string.find
local prefix, expected, after, window, epoch = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local KEYS_BEFORE, ARGS_BEFORE = 2, 5
local LIMIT = 2 ^ 53 -- beyond it doubles are not exact
local CHUNK = 1000   -- unpack is limited by Lua's stack

-- MGET, not GET: a key of another type reads as missing instead of raising an error.
local fence = call('MGET', KEYS[1])[1]
if fence ~= expected or epoch < tonumber(string.match(fence, ' epoch=(%d+) ')) then
  return {0, fence}
end

-- What the user may not run would fail between two writes. (Redis before 7 cannot tell.)
for _, write in ipairs({
  {'set', KEYS[1], '0'}, {'incrby', KEYS[1], '1'}, {'hset', KEYS[2], '0', '1'}, {'hdel', KEYS[2], '0'},
  {'rename', KEYS[1], prefix .. 'aside:0:0'},
}) do
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(write)) then
    return redis.error_reply('NOPERM the user of the store may not run ' .. write[1] .. ' on its keys')
  end
end

-- The limits themselves are outside the range, since what is rounded may be rounded onto them.
local function beyond(n)
  return n >= LIMIT or n <= -LIMIT
end

-- The number that a canonical decimal text stands for, or nil.
local function number(text)
  if text == '0' or find(text, '^%-?[1-9]%d*$') then
    local n = tonumber(text)
    if not beyond(n) then
      return n
    end
  end
end

-- All digits: tostring would write 1e+15.
local function digits(n)
  return string.format('%.0f', n)
end

local function item(i)
  return string.sub(KEYS[KEYS_BEFORE + i], #prefix + 1)
end

local count = #KEYS - KEYS_BEFORE
local values, absent, bad, debts = {}, {}, {}, {}

for first = 1, count, CHUNK do
  local last = math.min(first + CHUNK - 1, count)
  local texts = call('MGET', unpack(KEYS, KEYS_BEFORE + first, KEYS_BEFORE + last))
  local missing = {}
  for i = first, last do
    local text = texts[i - first + 1]
    if text then
      values[i] = number(text)
    else
      values[i], absent[i] = 0, true
      missing[#missing + 1] = KEYS[KEYS_BEFORE + i]
    end
  end
  if #missing > 0 and call('EXISTS', unpack(missing)) > 0 then
    for i = first, last do
      if not texts[i - first + 1] and call('EXISTS', KEYS[KEYS_BEFORE + i]) == 1 then
        values[i], absent[i] = nil, nil
      end
    end
  end
end

local debt_type = call('TYPE', KEYS[2]).ok
local debt_bad = debt_type ~= 'none' and debt_type ~= 'hash'
if debt_type == 'hash' then
  for first = 1, count, CHUNK do
    local last = math.min(first + CHUNK - 1, count)
    local items = {}
    for i = first, last do
      items[#items + 1] = item(i)
    end
    for j, text in ipairs(call('HMGET', KEYS[2], unpack(items))) do
      if text then
        local debt = number(text)
        if debt and debt > 0 then
          debts[first + j - 1] = debt
        else
          debt_bad = true
        end
      end
    end
  end
end
if debt_bad then
  debts = {}
end

local sums = {}
for i = 1, count do
  local amount, debt = tonumber(ARGV[ARGS_BEFORE + i]), debts[i] or 0
  local sum = values[i] and values[i] - debt + amount
  if not sum or beyond(sum) then
    bad[i] = not absent[i]
    sum = beyond(amount - debt) and amount or amount - debt
  end
  sums[i] = sum
end

local set_aside, owed = {}, {}

local function move_aside(key)
  local aside = prefix .. 'aside:' .. string.sub(key, #prefix + 1) .. ':' .. window
  call('RENAME', key, aside)
  set_aside[#set_aside + 1] = aside
end

if debt_bad then
  move_aside(KEYS[2])
end
for i = 1, count do
  local key, sum = KEYS[KEYS_BEFORE + i], sums[i]
  if bad[i] then
    move_aside(key)
  end
  if sum < 0 then
    call('SET', key, '0')
    call('HSET', KEYS[2], item(i), digits(-sum))
    owed[#owed + 1] = item(i)
    owed[#owed + 1] = digits(-sum)
  elseif debts[i] then
    call('SET', key, digits(sum))
    call('HDEL', KEYS[2], item(i))
  else
    call('INCRBY', key, ARGV[ARGS_BEFORE + i])
  end
end
call('SET', KEYS[1], after)
return {1, set_aside, owed}
