# SPDX-License-Identifier: MIT
"""Functions of the C library: a user's function of such a name must have another one in C.

It would take the place of the library's for everything else in the program, or be called in its place: a function is
looked up by name alone when a program is linked or loaded.
"""

from __future__ import annotations

import re

# C11 and POSIX.1-2008 with what Linux adds, less families that start like `pthread_`.
LIBRARY = frozenset(
    """a64l abort abs accept accept4 access acos acosf acosh acoshf acoshl acosl alarm aligned_alloc alphasort asctime
    asctime_r asin asinf asinh asinhf asinhl asinl asprintf atan atan2 atan2f atan2l atanf atanh atanhf atanhl atanl
    atof atoi atol atoll basename bcmp bcopy bind brk bsearch btowc bzero cabs cabsf cabsl cacos cacosf cacosh
    cacoshf cacoshl cacosl call_once calloc carg cargf cargl casin casinf casinh casinhf casinhl casinl cbrt cbrtf
    cbrtl ccos ccosf ccosh ccoshf ccoshl ccosl ceil ceilf ceill cexp cexpf cexpl cfgetispeed cfgetospeed cfree
    cfsetispeed cfsetospeed chdir chmod chown cimag cimagf cimagl clearerr clock clock_getcpuclockid clock_getres
    clock_gettime clock_nanosleep clock_settime clog clogf clogl clone close closedir closelog confstr conj conjf
    conjl connect copysign copysignf copysignl cos cosf cosh coshf coshl cosl cpow cpowf cpowl cproj cprojf cprojl
    creal crealf creall creat csin csinf csinh csinhf csinhl csinl csqrt csqrtf csqrtl ctan ctanf ctanh ctanhf
    ctanhl ctanl ctermid ctime ctime_r cuserid difftime dirfd dirname div dlclose dlerror dlopen dlsym dprintf
    drand48 drem dup dup2 dup3 duplocale endhostent endnetent endprotoent endservent environ epoll_create epoll_ctl
    epoll_wait erand48 erf erfc erfcf erfcl erff erfl err errx eventfd execl execle execlp execv execve execvp exit
    exp exp10 exp2 exp2f exp2l expf expl explicit_bzero expm1 expm1f expm1l fabs fabsf fabsl faccessat fchdir fchmod
    fchmodat fchown fchownat fclose fcntl fdatasync fdim fdimf fdiml fdopen fdopendir feclearexcept fegetenv
    fegetexceptflag fegetround feholdexcept feof feraiseexcept ferror fesetenv fesetexceptflag fesetround
    fetestexcept feupdateenv fexecve fflush ffs fgetc fgetpos fgets fgetwc fgetws fileno finite finitef finitel
    flockfile floor floorf floorl fma fmaf fmal fmax fmaxf fmaxl fmemopen fmin fminf fminl fmod fmodf fmodl fnmatch
    fopen fork fpathconf fprintf fputc fputs fputwc fputws fread free freeaddrinfo freelocale freopen frexp frexpf
    frexpl fscanf fseek fseeko fsetpos fstat fstatat fstatvfs fsync ftell ftello ftok ftruncate ftrylockfile ftw
    funlockfile futimens fwide fwprintf fwrite fwscanf gai_strerror getaddrinfo getc getc_unlocked getchar
    getchar_unlocked getcwd getdate getdelim getegid getentropy getenv geteuid getgid gethostbyaddr gethostbyname
    gethostent gethostid gethostname getitimer getline getlogin getlogin_r getnameinfo getnetbyaddr getnetbyname
    getnetent getopt getpagesize getpeername getpgid getpgrp getpid getppid getpriority getprotobyname
    getprotobynumber getprotoent getrandom getrlimit getrusage gets getservbyname getservbyport getservent getsid
    getsockname getsockopt getsubopt gettimeofday getuid getwc getwchar glob globfree gmtime gmtime_r grantpt
    hcreate hdestroy hsearch htonl htons hypot hypotf hypotl iconv iconv_close iconv_open if_freenameindex
    if_indextoname if_nameindex if_nametoindex ilogb ilogbf ilogbl imaxabs imaxdiv index initstate insque isalnum
    isalnum_l isalpha isalpha_l isascii isatty isblank isblank_l iscntrl iscntrl_l isdigit isdigit_l isgraph
    isgraph_l isinf isinff isinfl islower islower_l isnan isnanf isnanl isprint isprint_l ispunct ispunct_l isspace
    isspace_l isupper isupper_l isxdigit isxdigit_l j0 j1 jn jrand48 kill killpg l64a labs lchown lcong48 ldexp
    ldexpf ldexpl ldiv lfind lgamma lgammaf lgammal link linkat listen llabs lldiv llrint llrintf llrintl llround
    llroundf llroundl localeconv localtime localtime_r lockf log log10 log10f log10l log1p log1pf log1pl log2 log2f
    log2l logb logbf logbl logf logl longjmp lrand48 lrint lrintf lrintl lround lroundf lroundl lsearch lseek lstat
    malloc mblen mbrlen mbrtowc mbsinit mbsnrtowcs mbsrtowcs mbstowcs mbtowc memccpy memchr memcmp memcpy memmove
    memset mkdir mkdirat mkdtemp mkfifo mkfifoat mknod mknodat mkstemp mktime mlock mlockall mmap modf modff modfl
    mount mprotect mrand48 msync munlock munlockall munmap nan nanf nanl nanosleep nearbyint nearbyintf nearbyintl
    newlocale nextafter nextafterf nextafterl nexttoward nexttowardf nexttowardl nftw nice nrand48 ntohl ntohs open
    open_memstream open_wmemstream openat opendir openlog pathconf pause pclose perror pipe pipe2 poll popen pow
    powf powl pread printf pselect psiginfo psignal ptsname putc putc_unlocked putchar putchar_unlocked putenv puts
    putwc putwchar pwrite qsort quick_exit raise rand rand_r random read readdir readdir_r readlink readlinkat readv
    realloc reallocarray realpath reboot recv recvfrom recvmsg regcomp regerror regexec regfree remainder remainderf
    remainderl remove remque remquo remquof remquol rename renameat rewind rewinddir rint rintf rintl rmdir round
    roundf roundl sbrk scalb scalbln scalblnf scalblnl scalbn scalbnf scalbnl scandir scanf seed48 seekdir select
    send sendmsg sendto setbuf setegid setenv seteuid setgid sethostent setitimer setjmp setlocale setlogmask
    setnetent setpgid setpgrp setpriority setprotoent setregid setreuid setrlimit setservent setsid setsockopt
    setstate setuid setvbuf shutdown sigaction sigaddset sigaltstack sigdelset sigemptyset sigfillset sighold
    sigignore siginterrupt sigismember siglongjmp signal significand sigpause sigpending sigprocmask sigqueue
    sigrelse sigset sigsuspend sigtimedwait sigwait sigwaitinfo sin sincos sinf sinh sinhf sinhl sinl sleep snprintf
    sockatmark socket socketpair sprintf sqrt sqrtf sqrtl srand srand48 srandom sscanf stat statvfs stpcpy stpncpy
    strcasecmp strcasecmp_l strcat strchr strcmp strcoll strcoll_l strcpy strcspn strdup strerror strerror_l
    strerror_r strfmon strfmon_l strftime strftime_l strlen strncasecmp strncasecmp_l strncat strncmp strncpy
    strndup strnlen strpbrk strptime strrchr strsep strsignal strspn strstr strtod strtof strtoimax strtok strtok_r
    strtol strtold strtoll strtoul strtoull strtoumax strxfrm strxfrm_l swab swprintf swscanf symlink symlinkat sync
    sync_file_range sysconf syslog system sysv_signal tan tanf tanh tanhf tanhl tanl tdelete telldir tempnam tfind
    tgamma tgammaf tgammal time timer_create timer_delete timer_getoverrun timer_gettime timer_settime times
    timespec_get tmpfile tmpnam toascii tolower tolower_l toupper toupper_l trunc truncate truncf truncl tsearch
    ttyname ttyname_r twalk tzset umask umount uname ungetc ungetwc unlink unlinkat unlockpt unsetenv uselocale
    utime utimensat utimes valloc vasprintf vdprintf vfprintf vfscanf vfwprintf vfwscanf vprintf vscanf vsnprintf
    vsprintf vsscanf vswprintf vswscanf vwprintf vwscanf wait waitid waitpid warn warnx wmemchr wmemcmp wmemcpy
    wmemmove wmemset wprintf write writev wscanf y0 y1 yn div_t double_t float_t ldiv_t lldiv_t""".split()
)

# Global names of C++, of CUDA's built-in functions and types, and of pto-isa: kernels of devices have other ones.
_DEVICE = frozenset(
    """atexit canonicalize clearenv clock64 cyl_bessel_i0 cyl_bessel_i1 daylight dim3 dysize ecvt erfcinv erfcx erfinv
    fadd fcloseall fcvt fdiv fdividef fdivide ffma fmaximum fmaximum_num fminimum fminimum_num fmul fsqrt fsub fromfp
    gamma gcvt getloadavg getpt getw isctype larger llmax llmin llogb max memfrob memmem mempcpy min modulo
    nextdown nextup norm norm3d norm4d normcdf normcdfinv on_exit posix_memalign posix_openpt putw rcbrt rhypot rnorm
    rnorm3d rnorm4d roundeven rpmatch rsqrt setbuffer setlinebuf signgam sincospi sinpi cospi smaller std strfroml
    strfry strverscmp timegm timelocal timezone totalorder trap tzname uint ullmax ullmin ulong umax umin ushort wctomb
    wcstombs _ FILE Layout Rectangle Shape Spread Stride Tile TileAcc TileLeft TileRight GlobalTensor CompactMode
    PadValue SLayout BLayout TileType DYNAMIC WM WN V TR TC STAGES""".split()
)
_DEVICE_FAMILIES = re.compile(
    r"(?:cuda|CU|acl|acl[a-z]+|rt)[A-Z]\w*|(?:CUDA|FP|PIPE|EVENT)_\w+|T[A-Z]{2,}[A-Z_]*|u_(?:char|short|int|long)"
    r"|(?:u?(?:char|short|int|long|longlong)|float|double)(?:[1-4]|4_\w+)|(?:pthread|u?int)\w*_t"
    r"|(?:clock|dev|gid|id|key|loff|max_align|mode|nlink|nullptr|off|pid|ptrdiff|quad|register|ssize|time|timer|uid)_t",
    re.ASCII,
)
_OF_A_WIDTH = re.compile("f(?:32|64)?x?$|l$", re.ASCII)


def is_taken(name: str) -> bool:
    """Whether a kernel of a device must not have a name, as the C library or the headers of devices have it."""
    every = (name, _OF_A_WIDTH.sub("", name))  # `rsqrtf` as `rsqrt`
    return not _DEVICE.union(LIBRARY).isdisjoint(every) or _DEVICE_FAMILIES.fullmatch(name) is not None
