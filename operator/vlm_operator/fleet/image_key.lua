-- Names the first image of a request by its address, so that an image meets the engine that has it in its cache.
-- The name is length and samples of the address: enough to tell images apart, and short. Nothing is logged.

local HEADER = "x-vlmserve-image"
local SAMPLES, WIDTH = 16, 16
-- Query parameters that sign an address and change while the image stays.
local SIGNATURES = {"x%-amz%-[^=&]*", "x%-goog%-[^=&]*", "signature", "sig", "se", "st", "sp", "expires", "token", "policy", "key%-pair%-id"}

local function unsigned(address)
  local path, query = string.match(address, "^([^?#]*)%??([^#]*)")
  if query == nil or query == "" then
    return path or address
  end
  local kept = {}
  for part in string.gmatch(query, "[^&]+") do
    local name, signs = string.lower(string.match(part, "^[^=]*")), false
    for _, pattern in ipairs(SIGNATURES) do
      if string.match(name, "^" .. pattern .. "$") then
        signs = true
      end
    end
    if not signs then
      kept[#kept + 1] = part
    end
  end
  return path .. "?" .. table.concat(kept, "&")
end

-- A quote inside a JSON string is escaped, so an unescaped "image_url" before a colon is a field.
local function first_image(body)
  local from = 1
  while true do
    local _, field = string.find(body, '"image_url"%s*:%s*', from)
    if field == nil then
      return nil
    end
    local start = field + 1
    if string.sub(body, start, start) == "{" then
      local _, url = string.find(body, '^{[^"]*"url"%s*:%s*', start)
      if url == nil then
        _, url = string.find(body, '^{[^{}]-"url"%s*:%s*', start)
      end
      start = url and url + 1
    end
    if start and string.sub(body, start, start) == '"' then
      local finish = string.find(body, '"', start + 1, true)
      return finish and string.sub(body, start + 1, finish - 1)
    end
    from = field + 1
  end
end

local function sampled(address)
  local length = #address
  if length <= SAMPLES * WIDTH then
    return length .. ":" .. address
  end
  local parts, step = {}, (length - WIDTH) / (SAMPLES - 1)
  for i = 0, SAMPLES - 1 do
    local at = math.floor(i * step) + 1
    parts[#parts + 1] = string.sub(address, at, at + WIDTH - 1)
  end
  return length .. ":" .. table.concat(parts)
end

function envoy_on_request(request)
  request:headers():remove(HEADER)
  if request:headers():get(":method") ~= "POST" then
    return
  end
  local body = request:body()
  if body == nil or body:length() == 0 then
    return
  end
  local address = first_image(body:getBytes(0, body:length()))
  if address ~= nil and #address > 0 then
    if string.sub(address, 1, 5) ~= "data:" then
      address = unsigned(address)
    end
    local name = string.gsub(sampled(address), "[^%w:/%.,;=%+%-_?&%%]", "_")
    -- Waiting for the body ends what was taken from the request before.
    request:headers():add(HEADER, name)
  end
end
