// Runs the tests of the npm package http-cache-tests against a cache: starts their upstream and prints its port, reads the
// URL of the cache, runs all tests and prints their results as JSON.
//
//     node http_cache_tests.mjs NODE_MODULES

import http from 'node:http'
import readline from 'node:readline'

const modules = process.argv[2]
const load = path => import(`${modules}/${path}`)
const own = path => load(`http-cache-tests/${path}`)

const handlers = {
  config: (await own('server/handle-config.mjs')).default,
  test: (await own('server/handle-test.mjs')).default,
  state: (await own('server/handle-state.mjs')).default
}
const server = http.createServer((request, response) => {
  const [, kind, ...rest] = new URL(request.url, 'http://localhost/').pathname.split('/')
  handlers[kind](rest, request, response)
})
server.listen(0, '127.0.0.1', () => process.stdout.write(`${server.address().port}\n`))

const [url] = await new Promise(resolve => readline.createInterface(process.stdin).once('line', line => resolve([line])))
const write = process.stdout.write.bind(process.stdout)
console.log = console.error = () => {}
const suites = (await own('tests/index.mjs')).default
const { runTests, getResults } = await own('client/runner.mjs')
await runTests(suites, (await load('node-fetch/lib/index.mjs')).default, false, url)
const results = getResults()
const tests = suites.flatMap(suite => suite.tests).filter(test => !test.browser_only)
const report = tests.map(({ id, kind = 'required' }) => ({ id, kind, passed: results[id] === true, result: results[id] }))
write(JSON.stringify(report), () => process.exit(0))
