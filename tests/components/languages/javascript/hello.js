// A handler of wasi:http 0.2 in JavaScript.
addEventListener("fetch", (event) => {
    const path = new URL(event.request.url).pathname;
    event.respondWith(new Response(`hello from JavaScript: ${path}\n`, { headers: { "content-type": "text/plain" } }));
});
