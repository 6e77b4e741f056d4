<?php
/*
 * CGIplus for PHP (php-cli): one process handles many requests. Under plain CGI the same script handles one.
 *
 *     #!/usr/bin/env php
 *     <?php
 *     require __DIR__ . '/Cgiplus.php';
 *     foreach (Cgiplus::requests() as $request) {
 *         $request->write("Content-Type: text/plain\n\nhello\n");
 *     }
 *
 * Code before the loop runs once. `echo` writes to the response as well.
 */

/** A request: its variables, its body (`read`), and the output of its response (`write`). */
final class CgiplusRequest
{
    /** @var array<string, string> */
    public array $variables;
    private int $left;

    public function __construct(array $variables)
    {
        $this->variables = $variables;
        $this->left = max(0, (int) ($variables['CONTENT_LENGTH'] ?? 0));
    }

    /** Reads up to `$size` bytes of the body, or all remaining ones if negative; returns '' at its end. */
    public function read(int $size = -1): string
    {
        $wanted = $size < 0 ? $this->left : min($size, $this->left);
        $body = '';
        while (strlen($body) < $wanted) {
            $part = fread(STDIN, $wanted - strlen($body));
            if ($part === false || $part === '') {
                $this->left = 0;
                return $body;
            }
            $body .= $part;
        }
        $this->left -= $wanted;
        return $body;
    }

    /** Adds to the response. */
    public function write(string $data): void
    {
        echo $data;
    }

    /** Sends the output so far. */
    public function flush(): void
    {
        ob_flush();
        flush();
    }
}

final class Cgiplus
{
    /** @var resource|null */
    private static $stream = null;

    /** Whether the process may handle more than one request. */
    public static function isCgiplus(): bool
    {
        return getenv('CGIPLUSEOF') !== false;
    }

    /** The requests, one after the other. Fetching the next one ends the response to the previous one. */
    public static function requests(): iterable
    {
        // The size of the output buffer.
        ob_start(null, 65536);
        if (!self::isCgiplus()) {
            yield new CgiplusRequest(getenv());
            ob_end_flush();
            return;
        }
        $stream = self::stream();
        $end = getenv('CGIPLUSEOF');
        while (($line = fgets($stream)) !== false) {
            if ($line === "!\n") {
                $variables = self::records($stream);
            } elseif (strncmp($line, '!!', 2) === 0) {
                $variables = self::structs(stream_get_contents($stream, (int) substr($line, 2)));
            } else {
                continue;
            }
            $request = new CgiplusRequest($variables);
            yield $request;
            while ($request->read(65536) !== '') {
                // Skip the rest of the body, which precedes the next request's body.
            }
            $request->write($end);
            $request->flush();
        }
    }

    /** Sends a callout to the server. Returns the response, or null for a text without one. */
    public static function callout(string $text): ?string
    {
        echo getenv('CGIPLUSESC'), "\n", $text, "\n", getenv('CGIPLUSEOT');
        ob_flush();
        flush();
        if ($text[0] === '!' || $text[0] === '#') {
            return null;
        }
        return rtrim((string) fgets(self::stream()), "\n");
    }

    /**
     * Enables struct mode from the next request on: variables have lengths, so that they can contain any
     * byte. Call it while a request is handled.
     */
    public static function useStructMode(): void
    {
        if (self::isCgiplus() && getenv('CGIPLUS_VAR_RECORD') === false) {
            self::callout('!CGIPLUS: struct');
        }
    }

    private static function stream()
    {
        return self::$stream ??= fopen(getenv('CGIPLUSIN'), 'rb');
    }

    private static function records($stream): array
    {
        $variables = [];
        while (($line = fgets($stream)) !== false && $line !== "\n") {
            [$name, $value] = explode('=', substr($line, 0, -1), 2) + [1 => ''];
            $variables[$name] = $value;
        }
        return $variables;
    }

    private static function structs(string $data): array
    {
        $variables = [];
        $at = 0;
        while (($length = unpack('v', $data, $at)[1]) > 0) {
            [$name, $value] = explode('=', substr($data, $at + 2, $length - 1), 2) + [1 => ''];
            $variables[$name] = $value;
            $at += 2 + $length;
        }
        return $variables;
    }
}
