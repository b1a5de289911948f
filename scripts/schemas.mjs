// Asks the language server of taplo as an editor does, for scripts/schemas.
// Usage: node schemas.mjs FOLDER, which has `.schema/subscriber.json`.
import fs from 'node:fs'
import path from 'node:path'
import taplo from '@taplo/lsp'

const ANSWER_MS = 15_000
const FOLDER = process.argv[2]
const FILE = `file://${FOLDER}/subscribers/x.toml`
const TEXT = `#:schema ../.schema/subscriber.json
[subscriber]
id = "x"
[events]
types = ["a.b"]
[output]
priority = "hihg"

`
const WORD_LINE = 6
const NEXT_LINE = 7

let waiting = []
const environment = {
  now: () => new Date(),
  envVar: (name) => process.env[name],
  envVars: () => Object.entries(process.env),
  stdErrAtty: () => false,
  stdin: process.stdin,
  stdOut: async (bytes) => bytes.length,
  stdErr: async (bytes) => bytes.length,
  glob: () => [],
  readFile: (name) => fs.promises.readFile(name),
  writeFile: async () => {},
  urlToFilePath: (url) => decodeURIComponent(new URL(url).pathname),
  isAbsolute: (name) => path.isAbsolute(name),
  cwd: () => FOLDER,
  findConfigFile: () => undefined,
}
const server = await taplo.TaploLsp.initialize(environment, { onMessage: receive })

function receive(message) {
  if (message.id !== undefined && message.method) {
    const answers = message.params?.items?.map(() => ({ schema: { enabled: true } })) ?? null
    server.send({ jsonrpc: '2.0', id: message.id, result: answers })
    return
  }
  const found = waiting.filter(({ isMeant }) => isMeant(message))
  waiting = waiting.filter((one) => !found.includes(one))
  found.forEach(({ resolve }) => resolve(message))
}

function until(what, isMeant) {
  return new Promise((resolve, reject) => {
    waiting.push({ isMeant, resolve })
    setTimeout(() => reject(new Error(`no ${what} in ${ANSWER_MS} ms`)), ANSWER_MS)
  })
}

let asked = 0
function ask(method, params) {
  asked += 1
  const id = asked
  const answer = until(`answer to ${method}`, (message) => message.id === id && !message.method)
  server.send({ jsonrpc: '2.0', id, method, params })
  return answer
}

async function completed(line, character) {
  const { result } = await ask('textDocument/completion', { textDocument: { uri: FILE }, position: { line, character } })
  return (Array.isArray(result) ? result : (result?.items ?? [])).map(({ label }) => label)
}

function require(what, isTrue, shown) {
  if (!isTrue) {
    console.error(`scripts/schemas: ${what}: ${JSON.stringify(shown)}`)
    process.exit(1)
  }
  console.log(what)
}

await ask('initialize', {
  processId: process.pid,
  rootUri: `file://${FOLDER}`,
  capabilities: { workspace: { configuration: true, workspaceFolders: true } },
  workspaceFolders: [{ uri: `file://${FOLDER}`, name: 'aside' }],
})
server.send({ jsonrpc: '2.0', method: 'initialized', params: {} })
const isMarked = ({ method, params }) => method === 'textDocument/publishDiagnostics' && params.diagnostics.length > 0
const marked = until('mark', isMarked)
const textDocument = { uri: FILE, languageId: 'toml', version: 1, text: TEXT }
server.send({ jsonrpc: '2.0', method: 'textDocument/didOpen', params: { textDocument } })

const [mark] = (await marked).params.diagnostics
require('a wrong word is marked at its line', mark.range.start.line === WORD_LINE && mark.message.includes('"hihg"'), mark)
const keys = await completed(NEXT_LINE, 0)
require('keys are completed', ['inject_at', 'many', 'table'].every((key) => keys.includes(key)), keys)
const words = await completed(WORD_LINE, 'priority = "'.length)
require('words are completed', words.join(' ') === '"low" "normal" "high" "critical"', words)
const hover = await ask('textDocument/hover', { textDocument: { uri: FILE }, position: { line: WORD_LINE, character: 2 } })
require('a key is explained', JSON.stringify(hover.result).includes('The order of delivery'), hover.result)
process.exit(0)
